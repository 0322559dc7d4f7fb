"""The signed list: what a member takes from strangers, proposes, signs with the others, and keeps."""
