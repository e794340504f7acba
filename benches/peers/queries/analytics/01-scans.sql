-- a01: number of hits [ordered]
SELECT count(*) FROM events;

-- a02: number of hits with a campaign [ordered]
SELECT count(*) FROM events WHERE campaign_id > 100;

-- a03: sum, count and mean of three columns [ordered]
SELECT sum(action_value), count(*), avg(screen_width) FROM events;

-- a04: mean of a 64-bit column [ordered]
SELECT avg(CAST(visitor_id AS DOUBLE)) FROM events;

-- a05: distinct visitors [ordered]
SELECT count(DISTINCT visitor_id) FROM events;

-- a06: distinct search phrases [ordered]
SELECT count(DISTINCT search_phrase) FROM events;

-- a07: first and last day [ordered]
SELECT min(event_date), max(event_date) FROM events;

-- a08: sums of ten durations [ordered]
SELECT sum(dns_ms), sum(connect_ms), sum(tls_ms), sum(first_byte_ms), sum(download_ms), sum(dom_ready_ms),
       sum(load_ms), sum(render_ms), sum(visible_ms), sum(bytes_sent)
FROM events;

-- a09: revenue and its extremes, mostly null [ordered]
SELECT count(order_id), sum(order_total), min(order_total), max(order_total) FROM events;

-- a10: mean ratios with a floating filter [ordered]
SELECT avg(scroll_depth), avg(viewport_share), count(*) FROM events WHERE scroll_depth > 0.95;

-- a11: three rare flags at once [ordered]
SELECT count(*) FROM events WHERE is_download = 1 AND is_robot = 0 AND has_blocker;

-- a12: hits outside office hours by arithmetic [ordered]
SELECT count(*) FROM events WHERE extract(hour FROM event_time) NOT BETWEEN 8 AND 18 AND load_ms + render_ms > 5000;
