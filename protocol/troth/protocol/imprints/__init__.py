"""Imprints: hashes of rounded rows that are cheap in a circuit, so that a wrong token is proven without its row
(``contracts/imprints``, ``circuits``)."""
