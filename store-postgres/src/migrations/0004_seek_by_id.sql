-- `ready`, `scheduled` and `leased` are nearly empty now and then, and the planner, whose
-- statistics come from a vacuum, then takes any index that has `id` in it to find rows by their id. A moment later that
-- index is long, or full of dead entries, and is read from end to end. So each of these indexes has a
-- condition that is true of all rows: only a statement that repeats it can use the index, and one that
-- looks for ids cannot. No index has `epoch` in it, so the condition leads to no other index either.
DROP INDEX ready_by_rank;
CREATE INDEX ready_by_rank ON ready (queue, kind, class, turn, due, id) WHERE epoch >= 0;

DROP INDEX scheduled_by_time;
CREATE INDEX scheduled_by_time ON scheduled (run_at, id) WHERE epoch >= 0;

DROP INDEX scheduled_by_pair;
CREATE INDEX scheduled_by_pair ON scheduled (queue, kind, run_at, id) WHERE epoch >= 0;

DROP INDEX leased_by_time;
CREATE INDEX leased_by_time ON leased (lease_until, id) WHERE epoch >= 0;
