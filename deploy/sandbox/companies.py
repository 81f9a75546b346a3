"""About fifty real companies: name, domain, GitHub organisation. Every number about them is invented, see number()."""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Company:
    name: str
    domain: str
    github: str  # its organisation there
    industry: str

    @property
    def pitchbook_id(self) -> str:
        return f"{number(self.domain, 10_000, 99_999)}-{number(self.name, 10, 99)}"


def number(seed: str, least: int, most: int) -> int:
    """Invented, and the same each time for the same seed."""
    return least + zlib.crc32(seed.encode()) % (most - least + 1)


COMPANIES = [Company(**entry) for entry in json.loads((Path(__file__).parent / "companies.json").read_text())]
BY_DOMAIN = {company.domain: company for company in COMPANIES}
BY_PITCHBOOK_ID = {company.pitchbook_id: company for company in COMPANIES}
assert len(BY_DOMAIN) == len(BY_PITCHBOOK_ID) == len(COMPANIES)
