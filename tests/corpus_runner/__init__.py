"""Runs the wire corpus: every case through the public client against a real local server.

cases        a case's file as values; refuses whatever it does not know
wires        what a wire style looks like to a reader of requests
paths        `messages[role=tool][*].content` and the like
assertions   `request_must`: operators on one request
invariants   `request_must`: what it may ask of a whole request, by name
server       the local server that sends the listed bytes as separate reads
transcripts  the corpus's stored turns as our transcript
driver       one run through the client, and what was seen of it
house_rules  what holds in every case, listed or not
expectations what a case lists, compared with what was seen
"""
