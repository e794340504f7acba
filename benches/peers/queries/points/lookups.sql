-- p01: one event, all columns, by a key in no order
SELECT * FROM events WHERE event_id = 5121215481947193116;

-- p02: two columns of a few events by key
SELECT event_id, page_url FROM events WHERE event_id IN (6892870844423433054, 5121215481947193116, 42);

-- p03: an event that is not there
SELECT * FROM events WHERE event_id = 42;

-- p04: all lines of one order, by the sorted key
SELECT * FROM lineitem WHERE l_orderkey = 3000001;

-- p05: lines of one part, by a key in no order
SELECT l_orderkey, l_linenumber, l_quantity, l_shipdate FROM lineitem WHERE l_partkey = 77777;

-- p06: one site's day, ten columns
SELECT event_time, visitor_id, page_url, referrer_url, country, browser_name, os_name, action, load_ms, is_bounce
FROM events WHERE site_id = 33 AND event_date = '2025-03-17';
