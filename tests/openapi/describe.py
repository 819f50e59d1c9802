"""Prints the API's description as JSON, for `make client`."""

import json
import sys

from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.openapi import describe

if __name__ == "__main__":
    sys.stdout.write(json.dumps(describe(ENDPOINTS), indent=1))
