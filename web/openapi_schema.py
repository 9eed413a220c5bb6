"""Print the OpenAPI document of the studio, from which the types of the front end are generated."""

import json
import sys
from pathlib import Path

from bytemill.studio.app import create_app
from bytemill.studio.library import Library
from bytemill.studio.security import Access

app = create_app(Library(None), Access.of("127.0.0.1", 0))
Path(sys.argv[1]).write_text(json.dumps(app.openapi()), encoding="utf-8")
