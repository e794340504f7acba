-- a39: all columns of pages with a word, earliest first [ordered]
SELECT * FROM events WHERE page_url LIKE '%museum-tickets%' ORDER BY event_time, event_id LIMIT 10;

-- a40: phrases of the earliest searches [ordered]
SELECT search_phrase FROM events WHERE search_phrase <> '' ORDER BY event_time, event_id LIMIT 10;

-- a41: first phrases in the alphabet [ordered]
SELECT search_phrase FROM events WHERE search_phrase <> '' ORDER BY search_phrase LIMIT 10;

-- a42: one site in one month, pages [ordered]
SELECT page_url, count(*) AS views
FROM events
WHERE site_id = 33 AND event_date BETWEEN '2025-03-01' AND '2025-03-31' AND is_refresh = 0 AND page_url <> ''
GROUP BY page_url ORDER BY views DESC, page_url LIMIT 10;

-- a43: one site in one month, sources with an offset [ordered]
SELECT channel, search_engine_id, ad_network_id,
       CASE WHEN search_engine_id = 0 AND ad_network_id = 0 THEN referrer_url ELSE '' END AS source,
       page_url, count(*) AS views
FROM events
WHERE site_id = 33 AND event_date BETWEEN '2025-03-01' AND '2025-03-31' AND is_refresh = 0
GROUP BY channel, search_engine_id, ad_network_id, source, page_url
ORDER BY views DESC, channel, search_engine_id, ad_network_id, source, page_url LIMIT 10 OFFSET 100;

-- a44: one site, windows of one page's visitors [ordered]
SELECT window_width, window_height, count(*) AS views
FROM events
WHERE site_id = 33 AND event_date BETWEEN '2025-03-10' AND '2025-03-20' AND is_link = 0 AND is_download = 0
GROUP BY window_width, window_height ORDER BY views DESC, window_width, window_height LIMIT 10 OFFSET 20;

-- a45: one site, two days by the minute [ordered]
SELECT date_trunc('minute', event_time) AS m, count(*) AS views
FROM events
WHERE site_id = 33 AND event_date BETWEEN '2025-03-14' AND '2025-03-15' AND is_refresh = 0
GROUP BY m ORDER BY m LIMIT 10 OFFSET 200;

-- a46: largest orders of visitors with an account [ordered]
SELECT order_id, order_total, order_currency, account_id, page_title
FROM events WHERE account_id IS NOT NULL AND order_total IS NOT NULL
ORDER BY order_total DESC, order_id LIMIT 20;
