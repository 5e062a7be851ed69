"""Cases for the kinds of locks besides a mutex, one module for each kind; `fairness` has those of fair mutexes."""
