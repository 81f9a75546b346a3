SELECT etag, value FROM cache WHERE key = %(key)s AND etag IS NOT NULL AND expires_at > now()
