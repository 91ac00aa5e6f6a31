-- The version of a worker's program, and of a remote worker the own worker of the server that it
-- polled last; NULL if that is not known.

ALTER TABLE workers ADD COLUMN version TEXT;
ALTER TABLE workers ADD COLUMN server TEXT;
