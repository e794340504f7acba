-- a13: hits by advertising network
SELECT ad_network_id, count(*) AS hits FROM events WHERE ad_network_id <> 0 GROUP BY ad_network_id ORDER BY hits DESC;

-- a14: distinct visitors by region [ordered]
SELECT region_id, count(DISTINCT visitor_id) AS visitors
FROM events GROUP BY region_id ORDER BY visitors DESC, region_id LIMIT 10;

-- a15: several measures by region [ordered]
SELECT region_id, sum(action_value), count(*) AS hits, avg(screen_width), count(DISTINCT visitor_id)
FROM events GROUP BY region_id ORDER BY hits DESC, region_id LIMIT 10;

-- a16: visitors by device model [ordered]
SELECT device_model, count(DISTINCT visitor_id) AS visitors
FROM events WHERE device_model <> '' GROUP BY device_model ORDER BY visitors DESC, device_model LIMIT 10;

-- a17: visitors by device type and model [ordered]
SELECT device_type, device_model, count(DISTINCT visitor_id) AS visitors
FROM events WHERE device_model <> ''
GROUP BY device_type, device_model ORDER BY visitors DESC, device_type, device_model LIMIT 10;

-- a18: frequent search phrases [ordered]
SELECT search_phrase, count(*) AS hits
FROM events WHERE search_phrase <> '' GROUP BY search_phrase ORDER BY hits DESC, search_phrase LIMIT 10;

-- a19: search phrases by visitors [ordered]
SELECT search_phrase, count(DISTINCT visitor_id) AS visitors
FROM events WHERE search_phrase <> '' GROUP BY search_phrase ORDER BY visitors DESC, search_phrase LIMIT 10;

-- a20: search phrases by engine [ordered]
SELECT search_engine_id, search_phrase, count(*) AS hits
FROM events WHERE search_phrase <> ''
GROUP BY search_engine_id, search_phrase ORDER BY hits DESC, search_engine_id, search_phrase LIMIT 10;

-- a21: busiest visitors [ordered]
SELECT visitor_id, count(*) AS hits FROM events GROUP BY visitor_id ORDER BY hits DESC, visitor_id LIMIT 10;

-- a22: busiest visitors by phrase [ordered]
SELECT visitor_id, search_phrase, count(*) AS hits
FROM events GROUP BY visitor_id, search_phrase ORDER BY hits DESC, visitor_id, search_phrase LIMIT 10;

-- a23: busiest visitors by minute and phrase [ordered]
SELECT visitor_id, extract(minute FROM event_time) AS m, search_phrase, count(*) AS hits
FROM events GROUP BY visitor_id, m, search_phrase ORDER BY hits DESC, visitor_id, m, search_phrase LIMIT 10;

-- a24: hits by hour [ordered]
SELECT date_trunc('hour', event_time) AS h, count(*) AS hits, sum(is_bounce) FROM events GROUP BY h ORDER BY h LIMIT 50;

-- a25: browsers and systems
SELECT os_name, browser_name, count(*) AS hits, avg(load_ms) FROM events GROUP BY os_name, browser_name;

-- a26: channel by country with a sum of flags
SELECT country, channel, count(*), sum(is_new_visitor), sum(goals_reached) FROM events GROUP BY country, channel;

-- a27: pages by their address [ordered]
SELECT page_url, count(*) AS hits FROM events GROUP BY page_url ORDER BY hits DESC, page_url LIMIT 10;

-- a28: a constant beside the address [ordered]
SELECT 1 AS one, page_url, count(*) AS hits FROM events GROUP BY one, page_url ORDER BY hits DESC, page_url LIMIT 10;

-- a29: one address in four disguises [ordered]
SELECT client_ip, client_ip - 1, client_ip - 2, client_ip - 3, count(*) AS hits
FROM events
GROUP BY client_ip, client_ip - 1, client_ip - 2, client_ip - 3
ORDER BY hits DESC, client_ip LIMIT 10;

-- a30: currencies with decimal sums
SELECT order_currency, count(order_total), sum(order_total), avg(order_total) FROM events GROUP BY order_currency;
