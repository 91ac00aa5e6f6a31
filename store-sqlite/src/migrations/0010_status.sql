-- How many jobs of a queue and kind wait for another attempt: queued or scheduled (view 0 or 1),
-- with attempts charged to them.

ALTER TABLE counts ADD COLUMN retrying INTEGER NOT NULL DEFAULT 0;

UPDATE counts SET retrying = jobs FROM
    (SELECT queue << 32 | kind AS of_pair, count(*) AS jobs FROM jobs
        WHERE view IN (0, 1) AND attempts > 0 GROUP BY of_pair)
    WHERE pair = of_pair;

-- Since when a queue is paused, and by whom; NULL if that is not known.

ALTER TABLE queues ADD COLUMN paused_at INTEGER;
ALTER TABLE queues ADD COLUMN paused_by TEXT;
