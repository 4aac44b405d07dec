"""What `launch` starts in its tests: a node of random rows, with the options that it adds."""

import argparse
import json
import sys

from tests.transports import node

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("--transport")
    parser.add_argument("--nodes")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--key-file")
    given = parser.parse_args()
    options = {
        "rank": given.rank,
        "nodes": given.nodes.split(","),
        "key_file": given.key_file,
    }
    sys.argv = ["node", given.transport, json.dumps(options), given.work]
    sys.exit(node.main())
