-- Queues can be deleted. Their numbers are not given out again: `last_queue` is the greatest number
-- of a deleted queue. Programs of earlier schemas believe that a queue they have seen exists for
-- ever; this step refuses them.

INSERT INTO meta (key, value) VALUES ('last_queue', 0);
