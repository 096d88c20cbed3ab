"""`toolnexus memory`: what is remembered, looked at and looked after."""
