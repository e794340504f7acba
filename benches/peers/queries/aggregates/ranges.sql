-- r01: totals of two thirds of the orders [ordered]
SELECT count(*), sum(l_linenumber), avg(l_partkey), min(l_shipdate), max(l_extendedprice) FROM lineitem
WHERE l_orderkey BETWEEN 1000000 AND 5000000;

-- r02: turnover of the later half of the orders [ordered]
SELECT sum(l_quantity), sum(l_extendedprice) FROM lineitem WHERE l_orderkey > 3000000;

-- r03: traffic of some sites [ordered]
SELECT count(*), sum(bytes_sent), avg(load_ms), max(visible_ms), count(order_id) FROM events
WHERE site_id BETWEEN 10 AND 60;

-- r04: averages of the whole hit log [ordered]
SELECT avg(screen_width), avg(bytes_sent), avg(hit_number), count(signed_in_at), count(account_id) FROM events;

-- r05: totals of hits that nothing skips [ordered]
SELECT count(*), sum(bytes_sent), avg(load_ms), max(visible_ms), count(order_id) FROM events WHERE is_link = 1;

-- r06: totals of nullable columns below a filter on text [ordered]
SELECT sum(order_id), count(signed_in_at), max(left_at), sum(account_id) FROM events WHERE country = 'DE';

-- r07: the first and the last address, which are too long for exact statistics [ordered]
SELECT min(page_url), max(page_url) FROM events;

-- r08: the last address of hits that a filter selects [ordered]
SELECT max(page_url) FROM events WHERE country = 'DE';
