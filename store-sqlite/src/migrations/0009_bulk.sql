-- Bulk actions. `data` is core's Bulk; nothing here looks into it. There are some dozens at most.

CREATE TABLE bulk (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;
