"""Prints the API's description as JSON, for `make client`."""

import json
import sys

from outrider.cloud.api.openapi import describe
from outrider.cloud.api.table import ENDPOINTS

if __name__ == "__main__":
    sys.stdout.write(json.dumps(describe(ENDPOINTS), indent=1))
