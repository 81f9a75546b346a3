"""Stand-ins of the six vendors on loopback, for the tests and for `paceline run --sandbox`. They spend no credit."""

from deploy.sandbox.apollo import Apollo

VENDORS = [Apollo]
