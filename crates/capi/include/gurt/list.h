/* Doubly linked rings whose links sit in the caller's structs, and lists with one head pointer. */
#ifndef AZK_GURT_LIST_H
#define AZK_GURT_LIST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct d_list_head {
	struct d_list_head *next, *prev;
};

/* A ring: the head of a list, or the link in an entry. A head that points to itself is empty. */
typedef struct d_list_head d_list_t;

#define D_LIST_HEAD_INIT(name) { &(name), &(name) }
#define D_LIST_HEAD(name) d_list_t name = D_LIST_HEAD_INIT(name)
#define D_INIT_LIST_HEAD(ptr)          \
	do {                           \
		(ptr)->next = (ptr);   \
		(ptr)->prev = (ptr);   \
	} while (0)

/* Puts `entry` between two neighbours. */
static inline void azk_list_link(d_list_t *entry, d_list_t *before, d_list_t *after)
{
	entry->prev = before;
	entry->next = after;
	before->next = entry;
	after->prev = entry;
}

/* Adds an entry at the front. */
static inline void d_list_add(d_list_t *newe, d_list_t *head)
{
	azk_list_link(newe, head, head->next);
}

/* Adds an entry at the back. */
static inline void d_list_add_tail(d_list_t *newe, d_list_t *head)
{
	azk_list_link(newe, head->prev, head);
}

/* Takes an entry out; its own pointers stay as they are. */
static inline void d_list_del(d_list_t *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
}

/* Takes an entry out and makes it an empty ring. */
static inline void d_list_del_init(d_list_t *entry)
{
	d_list_del(entry);
	D_INIT_LIST_HEAD(entry);
}

/* Moves an entry to the front of a list. */
static inline void d_list_move(d_list_t *list, d_list_t *head)
{
	d_list_del(list);
	d_list_add(list, head);
}

/* Moves an entry to the back of a list. */
static inline void d_list_move_tail(d_list_t *list, d_list_t *head)
{
	d_list_del(list);
	d_list_add_tail(list, head);
}

static inline int d_list_empty(const d_list_t *head)
{
	return head->next == head;
}

static inline int d_list_empty_careful(const d_list_t *head)
{
	return head->next == head && head->prev == head;
}

/* Moves all entries of `list` to the front of `head`; `list` itself is left as it was. */
static inline void d_list_splice(d_list_t *list, d_list_t *head)
{
	if (!d_list_empty(list)) {
		list->prev->next = head->next;
		head->next->prev = list->prev;
		list->next->prev = head;
		head->next = list->next;
	}
}

/* The same, and `list` is empty afterwards. */
static inline void d_list_splice_init(d_list_t *list, d_list_t *head)
{
	d_list_splice(list, head);
	D_INIT_LIST_HEAD(list);
}

/* Takes the first entry out; its link, or NULL. */
static inline d_list_t *azk_list_pop(d_list_t *head)
{
	d_list_t *first = head->next;

	if (first == head)
		return NULL;
	d_list_del_init(first);
	return first;
}

/* The start of the struct around a member at `offset`; NULL stays NULL. */
static inline void *azk_struct_around(void *member, size_t offset)
{
	return member == NULL ? NULL : (void *)((char *)member - offset);
}

/* The struct of `type` whose `member` is at `ptr`. */
#define d_list_entry(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))

/* Takes the first entry out: a pointer to its struct, or NULL. */
#define d_list_pop_entry(list, type, member) \
	((type *)azk_struct_around(azk_list_pop(list), offsetof(type, member)))

/* Loops over links. The _safe ones allow the current entry to be taken out. */
#define d_list_for_each(pos, head) \
	for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)
#define d_list_for_each_prev(pos, head) \
	for ((pos) = (head)->prev; (pos) != (head); (pos) = (pos)->prev)
#define d_list_for_each_safe(pos, n, head) \
	for ((pos) = (head)->next, (n) = (pos)->next; (pos) != (head); (pos) = (n), (n) = (pos)->next)

/* Loops over structs of a type that is named. */
#define d_list_for_each_entry_typed(pos, head, type, member)                               \
	for ((pos) = d_list_entry((head)->next, type, member); &(pos)->member != (head);    \
	     (pos) = d_list_entry((pos)->member.next, type, member))
#define d_list_for_each_entry_reverse_typed(pos, head, type, member)                       \
	for ((pos) = d_list_entry((head)->prev, type, member); &(pos)->member != (head);    \
	     (pos) = d_list_entry((pos)->member.prev, type, member))
#define d_list_for_each_entry_safe_typed(pos, n, head, type, member)                       \
	for ((pos) = d_list_entry((head)->next, type, member),                              \
	    (n) = d_list_entry((pos)->member.next, type, member);                           \
	     &(pos)->member != (head);                                                      \
	     (pos) = (n), (n) = d_list_entry((n)->member.next, type, member))
#define d_list_for_each_entry_safe_from_typed(pos, n, head, type, member)                  \
	for ((n) = d_list_entry((pos)->member.next, type, member); &(pos)->member != (head); \
	     (pos) = (n), (n) = d_list_entry((n)->member.next, type, member))

/* Loops over structs of the type that `pos` points to. */
#define d_list_for_each_entry(pos, head, member) \
	d_list_for_each_entry_typed(pos, head, __typeof__(*(pos)), member)
#define d_list_for_each_entry_reverse(pos, head, member) \
	d_list_for_each_entry_reverse_typed(pos, head, __typeof__(*(pos)), member)
#define d_list_for_each_entry_safe(pos, n, head, member) \
	d_list_for_each_entry_safe_typed(pos, n, head, __typeof__(*(pos)), member)
#define d_list_for_each_entry_safe_from(pos, n, head, member) \
	d_list_for_each_entry_safe_from_typed(pos, n, head, __typeof__(*(pos)), member)
#define d_list_for_each_entry_continue(pos, head, member)                                  \
	for ((pos) = d_list_entry((pos)->member.next, __typeof__(*(pos)), member);          \
	     &(pos)->member != (head);                                                      \
	     (pos) = d_list_entry((pos)->member.next, __typeof__(*(pos)), member))
#define d_list_for_each_entry_reverse_safe(pos, n, head, member)                           \
	for ((pos) = d_list_entry((head)->prev, __typeof__(*(pos)), member),                \
	    (n) = d_list_entry((pos)->member.prev, __typeof__(*(pos)), member);             \
	     &(pos)->member != (head);                                                      \
	     (pos) = (n), (n) = d_list_entry((n)->member.prev, __typeof__(*(n)), member))

/* A link of a list with one head pointer. */
typedef struct d_hlist_node {
	struct d_hlist_node *next, **pprev;
} d_hlist_node_t;

typedef struct d_hlist_head {
	d_hlist_node_t *first;
} d_hlist_head_t;

#define D_HLIST_HEAD_INIT { NULL }
#define D_HLIST_HEAD(name) d_hlist_head_t name = { NULL }
#define D_INIT_HLIST_HEAD(ptr) ((ptr)->first = NULL)
#define D_INIT_HLIST_NODE(ptr) ((ptr)->next = NULL, (ptr)->pprev = NULL)

static inline int d_hlist_unhashed(const d_hlist_node_t *h)
{
	return h->pprev == NULL;
}

static inline int d_hlist_empty(const d_hlist_head_t *h)
{
	return h->first == NULL;
}

static inline void d_hlist_add_head(d_hlist_node_t *n, d_hlist_head_t *h)
{
	n->pprev = &h->first;
	n->next = h->first;
	if (n->next != NULL)
		n->next->pprev = &n->next;
	h->first = n;
}

static inline void d_hlist_del(d_hlist_node_t *n)
{
	*n->pprev = n->next;
	if (n->next != NULL)
		n->next->pprev = n->pprev;
}

static inline void d_hlist_del_init(d_hlist_node_t *n)
{
	if (!d_hlist_unhashed(n)) {
		d_hlist_del(n);
		D_INIT_HLIST_NODE(n);
	}
}

#define d_hlist_entry(ptr, type, member) d_list_entry(ptr, type, member)

#ifdef __cplusplus
}
#endif

#endif
