module example.org/windlass-worker

go 1.19
