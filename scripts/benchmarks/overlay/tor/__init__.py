"""Debian's tor as a private network on loopback, to be measured in the same run as Troth's relays."""
