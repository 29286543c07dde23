# An agent that fails on its input, however often it is tried.
echo "reading orders.csv"
echo "KeyError: 'price' in line 17" >&2
exit 1
