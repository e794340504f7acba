-- a31: addresses that hold a word [ordered]
SELECT count(*) FROM events WHERE page_url LIKE '%bicycle%';

-- a32: phrases on such addresses [ordered]
SELECT search_phrase, min(page_url), count(*) AS hits
FROM events WHERE page_url LIKE '%garden%' AND search_phrase <> ''
GROUP BY search_phrase ORDER BY hits DESC, search_phrase LIMIT 10;

-- a33: titles that hold a word while addresses do not [ordered]
SELECT search_phrase, min(page_url), min(page_title), count(*) AS hits, count(DISTINCT visitor_id)
FROM events WHERE page_title LIKE '%piano%' AND page_url NOT LIKE '%.shop.%' AND search_phrase <> ''
GROUP BY search_phrase ORDER BY hits DESC, search_phrase LIMIT 10;

-- a34: length of addresses by site [ordered]
SELECT site_id, avg(length(page_url)) AS chars, count(*) AS hits
FROM events WHERE page_url <> '' GROUP BY site_id HAVING count(*) > 2000 ORDER BY chars DESC, site_id LIMIT 25;

-- a35: hosts that refer [ordered]
SELECT regexp_replace(referrer_url, '^https?://(?:www\.)?([^/]+)/.*$', '\1') AS host,
       avg(length(referrer_url)) AS chars, count(*) AS hits, min(referrer_url)
FROM events WHERE referrer_url <> ''
GROUP BY host HAVING count(*) > 2000 ORDER BY chars DESC, host LIMIT 25;

-- a36: phrases without case [ordered]
SELECT count(*) FROM events WHERE search_phrase ILIKE '%WINTER Jacket%';

-- a37: prefixes of campaigns
SELECT utm_campaign, count(*) FROM events WHERE utm_campaign LIKE 'green-%' GROUP BY utm_campaign;

-- a38: text inside parameters [ordered]
SELECT count(*), count(DISTINCT site_id) FROM events WHERE parameters LIKE '%"piano":%';
