"""Stand-ins of the six vendors on loopback, for the tests and for `paceline run --sandbox`. They spend no credit."""

from deploy.sandbox.anthropic import Anthropic
from deploy.sandbox.apollo import Apollo
from deploy.sandbox.discord import Discord
from deploy.sandbox.github import GitHub
from deploy.sandbox.pitchbook import PitchBook
from deploy.sandbox.slack import Slack

VENDORS = [Anthropic, Apollo, Discord, GitHub, PitchBook, Slack]
