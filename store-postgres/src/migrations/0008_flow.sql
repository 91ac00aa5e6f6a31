-- Rates, limits of kinds and aging of a queue, as core writes them; NULL if it has none. The state of
-- its rates is in a table of its own: it changes with claims, whose batch holds the queue's lock.

ALTER TABLE queues ADD COLUMN flow text;

CREATE TABLE rates (
    queue integer PRIMARY KEY,
    tats  text NOT NULL
);
