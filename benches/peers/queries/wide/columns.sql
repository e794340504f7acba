-- w01: one integer column [ordered]
SELECT sum(c1500), min(c1500), max(c1500) FROM wide;

-- w02: one string column
SELECT c2997, count(*) FROM wide GROUP BY c2997;

-- w03: a filter on one column, another returned
SELECT c0004 FROM wide WHERE c2400 BETWEEN 2600 AND 2700;

-- w04: ten columns far apart [ordered]
SELECT sum(c0001), sum(c0301), sum(c0601), sum(c0901), sum(c1201), sum(c1501), sum(c1801), sum(c2101), sum(c2401),
       sum(c2701)
FROM wide;

-- w05: one row, all columns
SELECT * FROM wide WHERE c0000 = 1500;

-- w06: number of rows [ordered]
SELECT count(*) FROM wide;
