-- Rates, limits of kinds and aging of a queue, as core writes them; NULL if it has none. The state of
-- its rates is in a table of its own: it changes with claims, and is not cached.

ALTER TABLE queues ADD COLUMN flow TEXT;

CREATE TABLE rates (
    queue INTEGER PRIMARY KEY,
    tats  TEXT NOT NULL
) STRICT;
