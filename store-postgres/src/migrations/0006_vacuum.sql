-- Finished jobs are purged as fast as jobs come in, and their space is used again only once a vacuum
-- has removed the dead rows. Defaults wait until a fifth of a table is dead. A node vacuums these
-- tables itself while they are small; this is for large ones, and for nodes that do not own them.
-- Insert-only growth needs no vacuum of its own: rows are deleted before they are old.
ALTER TABLE jobs SET (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_threshold = 1000, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE results SET (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_threshold = 1000, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE attempts SET (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05,
    toast.autovacuum_vacuum_threshold = 1000, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE progress SET (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE errors SET (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE done SET (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE keys SET (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05);
