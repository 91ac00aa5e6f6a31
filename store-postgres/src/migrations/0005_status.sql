-- How many jobs of a queue and kind wait for another attempt: ready or scheduled, with attempts
-- charged to them. Those that wait now are counted under process 0.

ALTER TABLE counts ADD COLUMN retrying bigint NOT NULL DEFAULT 0;

INSERT INTO counts (queue, kind, process, queued, scheduled, processing, done, failed, cancelled,
                    retrying)
    SELECT queue, kind, 0, 0, 0, 0, 0, 0, 0, count(*)
    FROM (SELECT queue, kind FROM ready WHERE attempts > 0 UNION ALL
          SELECT queue, kind FROM scheduled WHERE attempts > 0) AS waiting
    GROUP BY queue, kind
    ON CONFLICT (queue, kind, process) DO UPDATE SET retrying = excluded.retrying;

-- Since when a queue is paused, and by whom; NULL if that is not known.

ALTER TABLE queues ADD COLUMN paused_at bigint, ADD COLUMN paused_by text;
