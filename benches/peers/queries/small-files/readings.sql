-- s01: number of rows [ordered]
SELECT count(*) FROM readings;

-- s02: sums over all files [ordered]
SELECT sum(device_id), avg(level), sum(retries), count(retries) FROM readings;

-- s03: one row by the key that rises from file to file
SELECT * FROM readings WHERE id = 345678;

-- s04: one device in all files
SELECT id, taken_at, level FROM readings WHERE device_id = 700;

-- s05: states
SELECT state, is_final, count(*), avg(level) FROM readings GROUP BY state, is_final;

-- s06: an hour of readings [ordered]
SELECT count(*), max(level) FROM readings
WHERE taken_at >= '2025-03-01T10:00:00' AND taken_at < '2025-03-01T11:00:00';

-- s07: notes with a word [ordered]
SELECT count(*) FROM readings WHERE note LIKE '%round 77%';

-- s08: latest rows [ordered]
SELECT * FROM readings ORDER BY id DESC LIMIT 10;
