-- p15: last orders, all columns [ordered by the first column]
SELECT * FROM lineitem ORDER BY l_orderkey DESC LIMIT 10;

-- p16: dearest lines [ordered]
SELECT l_orderkey, l_linenumber, l_extendedprice FROM lineitem
ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber LIMIT 10;

-- p17: latest errors, all columns [ordered]
SELECT * FROM events WHERE is_error_page = 1 ORDER BY event_time DESC, event_id LIMIT 10;
