#!/bin/sh
# One item counts the files of one directory.
set -eu
count=$(find "$AIOELASTICJOB_PARAMETER" -type f 2>/dev/null | wc -l)
echo "$AIOELASTICJOB_PARAMETER $count" >"$REPORTS/count-$AIOELASTICJOB_ITEM.txt.part"
mv "$REPORTS/count-$AIOELASTICJOB_ITEM.txt.part" "$REPORTS/count-$AIOELASTICJOB_ITEM.txt" # a run may be cut off anywhere
echo "$AIOELASTICJOB_PARAMETER has $count files"
