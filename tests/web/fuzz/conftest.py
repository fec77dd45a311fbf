"""`make test-api` runs these; the default suite does not, because they take a while and need schemathesis."""

import os

collect_ignore_glob = [] if os.environ.get("TENURE_TEST_API") else ["test_*.py"]
