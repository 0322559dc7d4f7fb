"""Organisations: credits for what a node holds, and the models that an organisation deploys with them."""
