# An agent whose first attempt meets a busy API: exit 75 says "not now, try again".
if [ "$CLAWQ_ATTEMPT" = 1 ]; then
    echo "503 from the API, giving up for now" >&2
    exit 75
fi
echo "done, at attempt $CLAWQ_ATTEMPT"
