"""What a page is made from: one request, who may send it, its answer, and what changes while a page is open."""
