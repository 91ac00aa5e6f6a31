-- What a worker would run (as core's Demand is written), how many jobs at once, how often it says
-- that it is there, and whether it was asked to stop. Of workers seen before this step nothing is
-- known: they are taken to run nothing until they are seen again.

ALTER TABLE workers ADD COLUMN demand TEXT NOT NULL DEFAULT '*/*';
ALTER TABLE workers ADD COLUMN slots INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN presence INTEGER NOT NULL DEFAULT 10000;
ALTER TABLE workers ADD COLUMN stopping INTEGER NOT NULL DEFAULT 0;
