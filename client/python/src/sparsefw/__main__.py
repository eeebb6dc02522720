"""python -m sparsefw"""

import sys

from sparsefw._cli import main

sys.exit(main())
