-- p07: a narrow filter and a sum [ordered]
SELECT sum(l_extendedprice) FROM lineitem WHERE l_shipdate = '1995-06-17';

-- p08: half of the lines, four columns summed [ordered]
SELECT sum(l_quantity), sum(l_extendedprice), sum(l_discount), sum(l_tax) FROM lineitem WHERE l_linenumber < 3;

-- p09: a list of codes [ordered]
SELECT count(*), sum(l_quantity) FROM lineitem
WHERE l_shipmode IN ('AIR', 'RAIL') AND l_shipinstruct = 'NONE' AND l_returnflag <> 'R';

-- p10: a column compared to another [ordered]
SELECT count(*), max(l_extendedprice) FROM lineitem WHERE l_receiptdate < l_commitdate AND l_quantity >= 45;

-- p11: slow pages of robots [ordered]
SELECT count(*), avg(load_ms) FROM events WHERE is_robot = 1 AND load_ms > 30000;
