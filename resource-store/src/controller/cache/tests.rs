use super::*;
use crate::{
    demo::{self, v2::Album},
    pb::Id,
    typed::ResourceData as _,
};

fn album(name: &str, year: i32, tracks: &[&str]) -> Arc<Resource> {
    let mut album = demo::album(name, &Id::default());
    album.owner = None;
    album.data.year_of_release = year;
    album.data.tracks = tracks.iter().map(|t| (*t).to_owned()).collect();
    Arc::new(album.encode())
}

fn by_year() -> Index {
    Index::decoded("year", |album: &crate::Resource<Album>| {
        vec![Key::new().number(album.data.year_of_release.into())]
    })
}

fn by_track() -> Index {
    Index::decoded("track", |album: &crate::Resource<Album>| {
        album.data.tracks.iter().map(|track| Key::new().raw(track.as_bytes())).collect()
    })
}

fn by_name() -> Index {
    Index::new("name", |resource| Ok(vec![Key::new().raw(resource.name().as_bytes())]))
}

fn cache(indexes: Vec<Index>) -> Cache {
    Cache::new([(Album::resource_type().group_kind(), indexes)], []).unwrap()
}

fn names(resources: &[Resource]) -> Vec<&str> {
    resources.iter().map(Resource::name).collect()
}

fn list(cache: &Cache, index: &str, key: &Key) -> Vec<String> {
    let found = cache.list(&Album::resource_type(), index, key).unwrap();
    names(&found).into_iter().map(str::to_owned).collect()
}

/// Spec: RS85
#[test]
fn what_is_not_there_or_there_twice_is_named() {
    let kind = || Album::resource_type().group_kind();
    let query: NamedQuery = Arc::new(|_, _| Ok(Vec::new()));
    let error = Cache::new([(kind(), vec![by_year(), by_year()])], []).unwrap_err();
    assert_eq!(error.to_string(), "Index with name \"year\" is already defined.");
    let twice = [("q".to_owned(), Arc::clone(&query)), ("q".to_owned(), query)];
    let error = Cache::new([], twice).unwrap_err();
    assert_eq!(error.to_string(), "Query with name \"q\" is already defined.");

    let cache = cache(vec![by_year()]);
    let error = cache.get(&Album::resource_type(), "nope", &Key::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation on resource type demo.Album failed: No index with name \"nope\" exists"
    );
    let error = cache.get(&Type::new("demo", "v2", "Artist"), "id", &Key::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation on resource type demo.Artist failed: the resource type specified is not indexed"
    );
    let error = cache.query("nope", &Key::new()).unwrap_err();
    assert_eq!(error.to_string(), "No query with name \"nope\" exists");
    let error = cache.insert(&Arc::new(Resource::default())).unwrap_err();
    assert_eq!(error.to_string(), "the resource type was not specified");
}

/// Spec: RS86
#[test]
fn resources_are_found_by_key_prefix_and_parent() {
    let cache = cache(vec![by_year(), by_track(), by_name()]);
    cache.insert(&album("foo", 1999, &["foxtrot", "alpha"])).unwrap();
    cache.insert(&album("food", 1999, &["bravo"])).unwrap();
    cache.insert(&album("other", 2001, &["first"])).unwrap();
    assert_eq!(list(&cache, "year", &Key::new().number(1999)), ["foo", "food"]);
    assert_eq!(list(&cache, "track", &Key::new().raw(b"f")), ["other", "foo"]);
    let ty = Album::resource_type();
    let parents = cache.parents(&ty, "name", &Key::new().raw(b"food")).unwrap();
    assert_eq!(names(&parents), ["foo", "food"]);
}

/// Spec: RS87
#[test]
fn keys_list_in_order_and_nest() {
    let cache = cache(vec![by_name()]);
    for name in ["r1", "r2", "r11", "r123"] {
        cache.insert(&album(name, 1, &[])).unwrap();
    }
    assert_eq!(list(&cache, "name", &Key::new()), ["r1", "r11", "r123", "r2"]);
    let ty = Album::resource_type();
    cache.delete(&album("r11", 1, &[])).unwrap();
    let parents = cache.parents(&ty, "name", &Key::new().raw(b"r123")).unwrap();
    assert_eq!(names(&parents), ["r1", "r123"]);
}

/// Spec: RS88
#[test]
fn one_of_several_under_a_key_goes_alone() {
    for (gone, left) in [
        ("a", vec!["b", "c"]),
        ("c", vec!["a", "b"]),
        ("b", vec!["a", "c"]),
        ("unknown", vec!["a", "b", "c"]),
    ] {
        let cache = cache(vec![by_year()]);
        for name in ["a", "b", "c"] {
            cache.insert(&album(name, 1999, &[])).unwrap();
        }
        cache.delete(&album(gone, 1999, &[])).unwrap();
        assert_eq!(list(&cache, "year", &Key::new().number(1999)), left);
    }
}

#[test]
fn a_replaced_resource_keeps_its_place_and_leaves_old_keys() {
    let cache = cache(vec![by_year()]);
    cache.insert(&album("a", 1999, &[])).unwrap();
    cache.insert(&album("b", 1999, &[])).unwrap();
    cache.insert(&album("a", 1999, &["new"])).unwrap();
    assert_eq!(list(&cache, "year", &Key::new().number(1999)), ["a", "b"]);
    cache.insert(&album("a", 2001, &[])).unwrap();
    assert_eq!(list(&cache, "year", &Key::new().number(1999)), ["b"]);
    assert_eq!(list(&cache, "year", &Key::new().number(2001)), ["a"]);
}

/// Spec: RS89
#[test]
fn one_definition_serves_two_caches() {
    let index = by_year();
    let (one, two) = (cache(vec![index.clone()]), cache(vec![index]));
    one.insert(&album("a", 1999, &[])).unwrap();
    assert_eq!(list(&one, "year", &Key::new().number(1999)), ["a"]);
    assert!(list(&two, "year", &Key::new().number(1999)).is_empty());
}

/// What else upstream rejects here, the types of `Index` do not let one write.
///
/// Spec: RS90
#[test]
fn an_index_needs_a_name_and_a_required_one_a_key() {
    let kind = || Album::resource_type().group_kind();
    let unnamed = Index::id("");
    let error = Cache::new([(kind(), vec![unnamed])], []).unwrap_err();
    assert_eq!(error.to_string(), "an index needs a name");

    let cache = cache(vec![by_year(), by_track().required()]);
    let error = cache.insert(&album("a", 1999, &[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation on resource type demo.Album failed: \
         the indexer produced no value for the required \"track\" index"
    );
    assert!(list(&cache, "year", &Key::new().number(1999)).is_empty(), "nothing was changed");
}

#[test]
fn owners_and_references_are_keys() {
    let owner = demo::artist("korn").id;
    let owned = demo::album("issues", &owner).encode();
    let references =
        Index::references("refs", |resource| Ok(vec![resource.id.clone().unwrap().to_reference()]));
    let cache = cache(vec![Index::owner("owner"), references]);
    cache.insert(&Arc::new(owned.clone())).unwrap();
    assert_eq!(list(&cache, "owner", &Key::of(&owner)), ["issues"]);
    assert_eq!(list(&cache, "refs", &Key::of(owned.id.as_ref().unwrap())), ["issues"]);
    let prefix = Id { name: "kor".to_owned(), ..owner };
    assert_eq!(list(&cache, "owner", &Key::prefix_of(&prefix)), ["issues"]);
}
