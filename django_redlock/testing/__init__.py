"""For those who test: the conformance suite that every backend of this package passes, in `conformance`."""

import pytest

# Plain asserts of the suite say what they compared, also in other people's test runs.
_CASES = (
    "faces",
    "fixtures",
    "handles",
    "exclusion",
    "leases",
    "interruptions",
    "inspection",
    "reentrant",
    "semaphores",
    "conformance",
)
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _CASES))
