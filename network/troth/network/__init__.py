"""A network as one file: creating it on any EVM chain, checking it, and naming it to every command.

`description` has the file, `networks` the folder where a user keeps files by name, `probing` what a chain must have,
`creating` the deployment that a kill does not hurt, `verifying` whether what stands on chain is what the file says,
`explaining` parameters in money and hours, `option` the flag --network of every command.
"""
