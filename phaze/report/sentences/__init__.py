"""Every sentence that a person reads about a result, made of the records that studies leave."""
