"""What lessons say in prose: each sentence with what it is computed from. `test_claims` holds them against the lessons,
and `claims_page` shows them to lecturers."""

from tests.notebooks import claims_00_08, claims_09_18

CLAIMS = (*claims_00_08.CLAIMS, *claims_09_18.CLAIMS)
