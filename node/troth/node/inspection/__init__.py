"""What an operator is told of this node: status, doctor, a page; and where the commands find it out."""
