-- What happened to jobs, as numbers. `span` is the place in core's Span::ALL; `slot` is the start of
-- the time that a row covers, in milliseconds of the Unix epoch; `process` is zero but for the rows
-- that one process adds to. `data` is core's FigureSet; nothing here looks into it.

CREATE TABLE figures (
    span    INTEGER NOT NULL,
    slot    INTEGER NOT NULL,
    process INTEGER NOT NULL,
    data    BLOB NOT NULL,
    PRIMARY KEY (span, slot, process)
) STRICT, WITHOUT ROWID;
