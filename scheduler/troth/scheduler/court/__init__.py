"""What this scheduler gives to the court: to verifiers that go there, and to reviewers."""
