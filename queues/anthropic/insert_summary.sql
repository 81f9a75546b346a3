INSERT INTO summaries (company_id, model, text) VALUES (%(company_id)s, %(model)s, %(text)s)
