"""The only room that knows SQL. Callers pass an open connection and get plain values back."""
