"""One of the processes: `python -m tenure.demo LABEL NOTES SCHEMA`."""

import sys

from tenure.demo.part import act

if __name__ == "__main__":
    act(*sys.argv[1:])
