-- Which process a worker is, as core's Instance is written; NULL if that is not known.

ALTER TABLE workers ADD COLUMN instance TEXT;
